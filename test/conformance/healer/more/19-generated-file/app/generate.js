const crypto = require("crypto"), fs = require("fs");
const source = fs.readFileSync("routes.txt");
const routes = {};
for (const line of source.toString().split("\n")) {
  const [path, text] = line.split(" ");
  if (path) routes[path] = text;
}
fs.mkdirSync("generated", { recursive: true });
fs.writeFileSync("generated/routes.json", JSON.stringify({ of: crypto.createHash("sha256").update(source).digest("hex"), routes }) + "\n");
