// Before anything is drawn, so that the page does not flash in the other colours.
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch (error) {
  // without storage the system's own setting holds
}
