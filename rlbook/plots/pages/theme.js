// Dark or light: as the page around this one says, or as the switch of the book's site was left; on its own as the system is.
function useTheme(theme) {
  document.documentElement.style.colorScheme = { light: "light", dark: "dark" }[theme] ?? "light dark";
}

onmessage = ({ data }) => {
  if (data?.theme) useTheme(data.theme);
};
if (location.href.includes("/_play/")) try { useTheme(localStorage.getItem("theme")); } catch { /* a frame may be refused it: then it follows the system */ }
