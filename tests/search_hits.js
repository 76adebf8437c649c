// What the search of a built site finds: node search_hits.js SITE QUERY… prints for each query its hits, best first, as JSON.
// The page that Sphinx's scripts expect is a stub.
const fs = require("fs"), path = require("path"), vm = require("vm");
const [site, ...queries] = process.argv.slice(2);

const element = () => ({ lastChild: null, appendChild: child => child });
const storage = { getItem: () => null, setItem() {}, removeItem() {} };
const page = {
  console, setTimeout() {}, localStorage: storage, location: { protocol: "file:" }, URLSearchParams,
  document: { getElementById: element, createElement: element, addEventListener() {}, documentElement: element(), readyState: "loading" },
};
page.window = page;
vm.createContext(page);
const scripts = ["documentation_options", "doctools", "sphinx_highlight", "searchtools", "language_data"];
for (const file of [...scripts.map(name => `_static/${name}.js`), "searchindex.js"])
  vm.runInContext(fs.readFileSync(path.join(site, file), "utf8"), page, { filename: file });

const found = query => vm.runInContext(`Search._performSearch(...Search._parseQuery(${JSON.stringify(query)}))`, page);
console.log(JSON.stringify(queries.map(query => found(query).reverse().map(([name, title, anchor]) => name + anchor))));
