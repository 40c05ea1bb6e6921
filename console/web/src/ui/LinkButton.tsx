/** A link that looks like a button. */
import { Button, type ButtonProps } from "@mantine/core";
import { Link, type LinkProps } from "@tanstack/react-router";

export function LinkButton({ children, variant, size, ...link }: Pick<ButtonProps, "variant" | "size"> & Pick<LinkProps, "to" | "params" | "search"> & { children: string }) {
  return <Button variant={variant ?? "filled"} size={size ?? "sm"} renderRoot={(props: Record<string, unknown>) => <Link {...link} {...props} />}>{children}</Button>;
}
