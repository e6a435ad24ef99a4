-- One wrk slice: method and body come from the environment, the outcome goes out as one line of JSON.
wrk.method = os.getenv("BENCH_METHOD")
wrk.body = os.getenv("BENCH_BODY")

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"microseconds":%d,"p99":%d,"refused":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d}\n',
    summary.requests, summary.duration, latency:percentile(99), e.status, e.connect, e.read, e.write, e.timeout))
end
