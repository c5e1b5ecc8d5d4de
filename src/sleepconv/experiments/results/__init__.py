"""What finished runs show beside the paper: records, searches, tables and lists.

Nothing here needs PyTorch, which takes seconds to import.
"""
