# Notes a refund down, once for each call: after a crash the same call may come again.
set -eu
grep -qsF "$HOLDFAST_CALL_KEY" data/refunds.csv && { echo "refunded already"; exit 0; }
echo "$HOLDFAST_CALL_KEY,$number,$cents" >> data/refunds.csv
echo "refunded $cents cents for order $number"
