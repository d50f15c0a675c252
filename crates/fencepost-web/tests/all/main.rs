//! Tests of the pages, on invented answers.

mod demo;
mod html;
mod pages;
