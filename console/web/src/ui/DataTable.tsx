/**
 * A list as a table; on a phone each row is a card whose cells carry their column's name. The roles are written out
 * because a table that is laid out as blocks is none for screen readers otherwise.
 */
import { Table } from "@mantine/core";
import { flexRender, getCoreRowModel, useReactTable, type ColumnDef } from "@tanstack/react-table";

export type { ColumnDef };

interface Props<Row> {
  /** What the table shows, for screen readers. */
  label: string;
  columns: ColumnDef<Row>[];
  rows: Row[];
  rowId: (row: Row) => string;
}

export function DataTable<Row>({ label, columns, rows, rowId }: Props<Row>) {
  const table = useReactTable({ data: rows, columns, getRowId: rowId, getCoreRowModel: getCoreRowModel() });
  return (
    <Table.ScrollContainer minWidth={0} scrollAreaProps={{ tabIndex: -1 }}>
      <Table className="data-table" role="table" aria-label={label} verticalSpacing="xs" highlightOnHover>
        <Table.Thead role="rowgroup">
          {table.getHeaderGroups().map((group) => (
            <Table.Tr key={group.id} role="row">
              {group.headers.map((header) => (
                <Table.Th key={header.id} role="columnheader" scope="col">
                  {flexRender(header.column.columnDef.header, header.getContext())}
                </Table.Th>
              ))}
            </Table.Tr>
          ))}
        </Table.Thead>
        <Table.Tbody role="rowgroup">
          {table.getRowModel().rows.map((row) => (
            <Table.Tr key={row.id} role="row">
              {row.getVisibleCells().map((cell) => (
                <Table.Td key={cell.id} role="cell" data-label={cell.column.columnDef.header}>
                  <div className="cell">{flexRender(cell.column.columnDef.cell, cell.getContext())}</div>
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}
