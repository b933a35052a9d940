"""Small tools that know nothing of adaptation."""
