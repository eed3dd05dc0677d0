"""Auditing: attacks on trained models, and lower bounds on epsilon from what came out."""
