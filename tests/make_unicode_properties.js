// Writes structgen/grammar/unicode_properties.txt anew, with the names that are in it, as Node's RegExp
// knows them. Takes half a minute.
const fs = require('fs');
const path = require('path').join(__dirname, '../structgen/grammar/unicode_properties.txt');
const kinds = { sc: 'Script=', scx: 'Script_Extensions=', bin: '' };

function ranges(property) {
  const regex = new RegExp(`^\\p{${property}}$`, 'u');
  const out = [];
  let start = -1;
  for (let c = 0; c <= 0x110000; c++) {
    const isChar = c < 0x110000 && !(c >= 0xd800 && c <= 0xdfff);
    const inside = isChar && regex.test(String.fromCodePoint(c));
    if (inside && start < 0) start = c;
    if (!inside && start >= 0) { out.push([start, c - 1]); start = -1; }
  }
  let at = 0;
  return out.map(([low, high]) => {
    const gap = (low - at).toString(36);
    at = high;
    return high > low ? `${gap}-${(high - low).toString(36)}` : gap;
  }).join(' ');
}

const out = [];
for (const line of fs.readFileSync(path, 'utf8').trim().split('\n')) {
  if (line.startsWith('#')) {
    out.push(line.replace(/Unicode [0-9.]+/, `Unicode ${process.versions.unicode}`));
    continue;
  }
  const [kind, names] = line.split(': ')[0].split(' ');
  if (kind === 'scx') continue;
  const first = names.split('=')[0];
  const found = ranges(kinds[kind] + first);
  out.push(`${kind} ${names}: ${found}`);
  if (kind === 'sc') {
    const extended = ranges(kinds.scx + first);
    if (extended !== found) out.push(`scx ${names}: ${extended}`);
  }
}
fs.writeFileSync(path, out.join('\n') + '\n');
