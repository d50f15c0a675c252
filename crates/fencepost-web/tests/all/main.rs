//! Tests of the pages, on invented answers.

mod demo;
mod hostile;
mod html;
mod pages;
