"""Programs that ``test_triton.py`` runs in processes of their own."""

collect_ignore = ["compile_programs.py"]
