// Follows one event stream with npm's eventsource and prints a line of JSON for each thing that it sees.
// node follow.mjs URL EVENT...: the names to listen for; ends when the client has given up for good.
import { EventSource } from 'eventsource'

const [url, ...names] = process.argv.slice(2)
const print = (seen) => console.log(JSON.stringify(seen))

// The client's own timer for reconnecting does not keep node alive; a browser's tab would stay open.
const open = setInterval(() => {}, 60_000)

const source = new EventSource(url)
source.addEventListener('open', () => print({ event: 'open' }))
for (const name of names) {
  source.addEventListener(name, ({ type, lastEventId, data }) =>
    print({ event: type, id: lastEventId, data: JSON.parse(data) }))
}
source.addEventListener('error', ({ code }) => {
  const closed = source.readyState === EventSource.CLOSED
  print({ event: 'error', status: code ?? null, closed })
  if (closed) clearInterval(open)
})
