# The job: it charges a customer, then notes that it did. A charge is a line in the file of the bank.
grep -q 'invoice 7' done.log && exit 0
echo 'invoice 7: 49.00 charged' >>bank.log
echo "charged $$"
read -r _ || exit 1
echo 'invoice 7' >>done.log
