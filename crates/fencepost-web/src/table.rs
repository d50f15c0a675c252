//! Plain tables. On a phone each row becomes a list of its cells with their names, so nothing has to be scrolled sideways.
//! The roles keep it a table for screen readers there.

use maud::{Markup, html};

/// A column: its name, and whether its text may be long.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    is_wide: bool,
}

pub const fn column(name: &'static str) -> Column {
    Column { name, is_wide: false }
}

/// A column of sentences, which wrap.
pub const fn wide(name: &'static str) -> Column {
    Column { name, is_wide: true }
}

/// A table whose first column names its rows.
pub fn table<const COLUMNS: usize>(
    caption: &str,
    columns: [Column; COLUMNS],
    rows: impl IntoIterator<Item = [Markup; COLUMNS]>,
) -> Markup {
    html! {
        table.plain role="table" aria-label=(caption) {
            thead role="rowgroup" {
                tr role="row" { @for column in columns { th role="columnheader" scope="col" { (column.name) } } }
            }
            tbody role="rowgroup" {
                @for row in rows {
                    tr role="row" {
                        @for (place, (column, cell)) in columns.iter().zip(row).enumerate() { (self::cell(place, column, &cell)) }
                    }
                }
            }
        }
    }
}

fn cell(place: usize, column: &Column, content: &Markup) -> Markup {
    let class = column.is_wide.then_some("wide");
    html! {
        @if place == 0 {
            th role="rowheader" scope="row" class=[class] { (content) }
        } @else {
            td role="cell" class=[class] data-name=(column.name) { (content) }
        }
    }
}
