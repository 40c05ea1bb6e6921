/** Short notes that something was done. What was not done is told where it was asked for. */
import { notifications } from "@mantine/notifications";

export function told(message: string): void {
  notifications.show({ message, autoClose: 4000, withBorder: true });
}
