"""Access policies: parse and evaluate documents in the language of AWS IAM. Pure: no clock, no I/O, no journal.

Source: the IAM user guide, "IAM JSON policy elements reference" and "Policy evaluation logic".
"""
