/** The text a job is made from: typed, dropped, chosen, or one of the project's documents. */

export const MOST_CHARACTERS = 1_000_000; // the input's bound, docs/protocol.md 9
const MOST_FILE_BYTES = 8 * 1024 * 1024; // the gateway's bound on a body; a longer file cannot fit whatever it holds
const EDITABLE_CHARACTERS = 100_000; // a textarea lays out its whole text at every key; more is held beside it

/** Words for a person about a file that cannot be taken. */
export class UnreadableFile extends Error {}

/** Characters as the gateway counts them: code points, not UTF-16 units. @param {string} text */
export function countCharacters(text) {
  let pairs = 0;
  for (let index = 0; index < text.length; index++) {
    if ((text.charCodeAt(index) & 0xfc00) === 0xd800 && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00) pairs++;
  }
  return text.length - pairs;
}

export function isEditable(text) {
  return text.length <= EDITABLE_CHARACTERS;
}

/** @param {File} file @returns {Promise<string>} */
export async function readFile(file) {
  if (!/\.(txt|md|markdown|text)$/i.test(file.name) && !file.type.startsWith("text/")) {
    throw new UnreadableFile(`${file.name} is no .txt or .md file. Save it as plain text first.`);
  }
  if (file.size > MOST_FILE_BYTES) throw new UnreadableFile(`${file.name} is larger than 8 MiB. Take a part of it.`);
  return decoded(new Uint8Array(await file.arrayBuffer()), file.name);
}

function decoded(bytes, name) {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(bytes);
  if (bytes.subarray(0, 8192).includes(0)) throw new UnreadableFile(`${name} does not hold text. Save it as plain text.`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes); // what old editors write when it is not UTF-8
  }
}

/** A short name for a text without one. @param {string} text */
export function titleOf(text) {
  const line = text.slice(0, 2000).split("\n").map((part) => part.replace(/^#+\s*/, "").trim()).find(Boolean);
  const words = (line ?? "Untitled").replace(/\s+/g, " ");
  const characters = Array.from(words); // never half an emoji
  return characters.length > 70 ? `${characters.slice(0, 70).join("").replace(/\s\S*$/, "")}…` : words;
}
