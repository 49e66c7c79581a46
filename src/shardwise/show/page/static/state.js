// The state of a view is its link: #/view?field=value. Fields that are as usual are left out; tensor parallel says that a
// policy is stated at all.
export function read(hash, table) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const view = table.views[path] ? path : "plan";
  const stated = Object.fromEntries(new URLSearchParams(query || ""));
  return { view, state: { ...table.defaults, ...stated }, stated: Object.keys(stated) };
}

export function link(view, state, table) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const text = value === null || value === undefined ? "" : String(value);
    const policy = name === "tp" && table.views[view].fields.includes("tp");
    if (policy || text !== (table.defaults[name] || "")) query.set(name, text);
  }
  const words = query.toString();
  return `#/${view}${words ? `?${words}` : ""}`;
}

// A configuration that was dropped here travels in the link, as text that a link may hold.
export function packed(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}
