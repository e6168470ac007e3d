"""What is done with torch: models loaded, trained and saved. Imported only by stages that need it, when they run."""
