"""What an image holds, by layer, file and package: how two images differ, and what one holds for nothing."""
