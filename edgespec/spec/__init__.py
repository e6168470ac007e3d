"""The spec language: text to typed documents, with positions."""
