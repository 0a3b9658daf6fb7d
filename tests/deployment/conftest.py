"""Its place puts this folder on the path, also for the tests in network/."""
