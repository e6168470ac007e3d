"""What runs in a project's CI: a comment and an issue kept up to date on GitHub or GitLab."""
