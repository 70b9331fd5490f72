# A worker for the injections: tells the truth outside the home, in a folder of $INJECTED_TRUTH.
# With $INJECTED_HOLD it goes on until it is stopped.
truth=$INJECTED_TRUTH/$KGOPS_RUN
exec 9> "$truth/alone"
# The grandchildren do not get this one: two workers of one run at a time would meet here.
flock -n 9 || : > "$truth/TWICE"
echo "$KGOPS_ATTEMPT $$" >> "$truth/starts"
sleep 600 9>&- &
setsid sleep 600 9>&- &
echo '{"event": "metric", "at": 1700000000, "name": "unit", "value": 1, "step": 1}' >> "$KGOPS_EVENTS"
if [ -n "$INJECTED_HOLD" ]; then
    sleep 600 9>&-
fi
sleep 0.1 9>&-
echo '{"event": "metric", "at": 1700000001, "name": "unit", "value": 2, "step": 2}' >> "$KGOPS_EVENTS"
: > "$truth/finished"
