# The morning job: it refreshes prices.txt from its source.
cat source.txt >prices.new || exit
mv prices.new prices.txt
