"""The paper's figures, drawn from records."""
