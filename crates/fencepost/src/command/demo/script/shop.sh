# The noon job: it publishes what it finds.
{ echo "Today:"; cat prices.txt; } >page
