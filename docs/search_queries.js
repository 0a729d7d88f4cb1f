// What the search of a built site finds, by the worker that the page itself uses: node search_queries.js SITE QUERY...
// prints a JSON list of addresses for each query.
const fs = require("fs")
const path = require("path")
const [site, ...queries] = process.argv.slice(2)
const workers = path.join(site, "assets/javascripts/workers")
const worker = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name))
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf-8"))
const page = {}
globalThis.self = globalThis
globalThis.addEventListener = (_, handler) => (page.handler = handler)
globalThis.postMessage = (message) => page.answer(message.data)
require(path.resolve(workers, worker))
const ask = (type, data) => new Promise((answer) => ((page.answer = answer), page.handler({ data: { type, data } })))
const setup = { ...index, options: { suggest: false } }
;(async () => {
  await ask(0, setup)
  const found = {}
  for (const query of queries) {
    const { items } = await ask(2, query)
    found[query] = items.map((sections) => sections[0].location.split("#")[0])
  }
  console.log(JSON.stringify(found))
})()
