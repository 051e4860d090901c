"""The controlled experiment of MCInfoNCE (thesis App. B)."""
