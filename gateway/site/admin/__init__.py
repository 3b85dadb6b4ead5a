"""What the commands of an operator do to a site."""
