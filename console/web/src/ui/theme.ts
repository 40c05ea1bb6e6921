/** Colours and defaults. Contrast is at least 4.5 to 1 in both schemes, which a test asks axe about on every page. */
import { createTheme } from "@mantine/core";

export const theme = createTheme({
  primaryColor: "cyan",
  primaryShade: 9,
  autoContrast: true,
  defaultRadius: "md",
  fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
  fontFamilyMonospace: "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace",
  respectReducedMotion: true,
  // what may be left out says so; a star at everything else says nothing
  components: {
    InputWrapper: { defaultProps: { withAsterisk: false } },
    CloseButton: { defaultProps: { "aria-label": "Close" } },
  },
});
