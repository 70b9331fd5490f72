"""Planning: profiles, rules, memory and time estimates, OOM fallbacks. Loads no torch."""
