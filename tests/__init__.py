"""Tests mirror the folders they are about; flows/ has whole journeys, clients/ the SDKs that users come with."""
