"""The paper's tables and figures, made from records."""
