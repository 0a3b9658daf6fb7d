"""The methods once more, in plain NumPy loops, straight from the papers' pseudo-code.

They share nothing with the library but its random draws (samples, participants, coins), so that
trajectories can be compared. Each yields the model after every round. Sums and duals are kept as in
the papers, not as the library keeps them. One file per family.
"""
