"""Histories as pictures and tables."""
