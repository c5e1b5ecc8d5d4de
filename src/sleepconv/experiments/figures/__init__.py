"""Figures, drawn from records."""
