"""What was measured, and the tables that are made of it."""
