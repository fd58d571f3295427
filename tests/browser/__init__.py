"""The page in a real Chromium, against a real gateway, workers and database."""
