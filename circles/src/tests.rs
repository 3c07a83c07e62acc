use std::{fs, path::Path};

use rstest::rstest;

use super::*;

#[test]
fn no_files_or_folders_of_this_workspace_import_each_other_in_a_circle() {
    let circles = of_workspace().unwrap();
    assert!(circles.is_empty(), "\n{}", circles.into_iter().collect::<Vec<_>>().join("\n"));
}

/// Returns the circles of a crate with these files. Their names are without `.rs`.
fn circles_of(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for (name, text) in files {
        let file = root.join(format!("{name}.rs"));
        fs::create_dir_all(file.parent().unwrap_or(Path::new(""))).unwrap();
        fs::write(file, text).unwrap();
    }
    let imports = imports(&Tree::read(&root.join("lib.rs")).unwrap());
    let all = [between_folders(&imports), imports];
    all.iter().flat_map(circles).map(|circle| circle.seen_from(&root)).collect()
}

const A_AND_B: &str = "2 files import each other:\n  a.rs -> b.rs: B\n  b.rs -> a.rs: A\n";
const ROOT: (&str, &str) = ("lib", "mod a; mod b;");
const A: (&str, &str) = ("a", "use crate::b::B; pub struct A;");

#[rstest]
#[case::imports("use crate::a::A; pub struct B;")]
#[case::an_import_of_the_module("use super::a; pub struct B(a::A);")]
#[case::a_path_without_an_import("pub struct B(crate::a::A);")]
#[case::a_path_of_a_constructor("pub struct B; fn b() { drop(0..crate::a::A::new().one) }")]
#[case::the_arguments_of_a_macro("pub struct B; fn b() { println!(\"{}\", crate::a::A) }")]
#[case::the_arguments_of_an_attribute("#[doc = crate::a::A] pub struct B;")]
#[case::an_import_in_a_function("pub struct B; fn b() { use crate::{a::{A as Other}}; }")]
#[case::a_star("use crate::a::*; pub struct B(A);")]
#[case::an_inline_module("pub struct B; mod inner { fn b(_: super::super::a::A) {} }")]
#[case::a_re_export("pub struct B; pub use super::a::A;")]
fn two_files_that_import_each_other_are_a_circle(#[case] b: &str) {
    assert_eq!(circles_of(&[ROOT, A, ("b", b)]), A_AND_B);
}

#[rstest]
#[case::no_import("pub struct B;")]
#[case::a_test("pub struct B; #[cfg(test)] mod tests { use crate::a::A; }")]
#[case::an_import_for_tests("pub struct B; #[cfg(test)] use crate::a::A;")]
#[case::documentation("/// See [`crate::a::A`].\npub struct B;")]
#[case::the_name_of_a_module("use crate::a; pub struct B;")]
#[case::another_crate_of_the_name("pub struct B; fn b() { ::a::A }")]
#[case::a_field_of_the_name("pub struct B; fn b(a: B) { a.A }")]
#[case::a_name_that_the_other_file_imports_from_this_one("pub struct B(crate::a::B);")]
fn two_files_of_which_only_one_imports_the_other_are_no_circle(#[case] b: &str) {
    assert_eq!(circles_of(&[ROOT, A, ("b", b)]), "");
}

#[test]
fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
    let files = [
        ("lib", "mod a;"),
        ("a/mod", "mod child; use child::Child; struct A;"),
        ("a/child", "pub struct Child(super::A);"),
    ];
    let expected = "2 files import each other:\n  a/child.rs -> a/mod.rs: A\n  a/mod.rs -> a/child.rs: Child\n";
    assert_eq!(circles_of(&files), expected);
}

#[test]
fn two_folders_that_import_each_other_are_a_circle_although_no_files_are() {
    let files = [
        ("lib", "mod a; mod b; mod c;"),
        ("a", "mod one; pub use self::one::One; pub struct A(crate::b::two::Two);"),
        ("a/one", "pub struct One;"),
        ("b", "pub mod two; pub struct B(crate::a::One);"),
        ("b/two", "pub struct Two(crate::c::C);"),
        ("c", "pub struct C;"),
    ];
    assert_eq!(circles_of(&files), "2 folders import each other:\n  a -> b: Two\n  b -> a: One\n");
}

#[test]
fn a_module_that_only_re_exports_names_is_in_no_circle() {
    let files = [
        ("lib", "mod a;"),
        ("a", "mod one; mod two; pub use self::{one::One, two::*};"),
        ("a/one", "pub struct One(super::Two);"),
        ("a/two", "pub struct Two;"),
    ];
    assert_eq!(circles_of(&files), "");
}

#[test]
fn a_re_export_is_followed_to_the_file_that_defines_the_name() {
    let root = ("lib", "mod a; mod b; pub use a::A as Renamed; use b as other; pub use other::B;");
    let files = [root, ("a", "use crate::B; pub struct A;"), ("b", "pub struct B(crate::Renamed);")];
    assert_eq!(circles_of(&files), A_AND_B);
}

#[test]
fn a_circle_may_have_more_than_two_files() {
    let files = [
        ("lib", "mod a; mod b; mod c;"),
        ("a", "pub struct A(crate::b::B);"),
        ("b", "pub struct B(crate::c::C);"),
        ("c", "#[path = \"elsewhere.rs\"] mod d; pub struct C(d::D);"),
        ("elsewhere", "pub struct D(crate::a::A);"),
    ];
    let expected = "4 files import each other:\n  a.rs -> b.rs: B\n  b.rs -> c.rs: C\n  c.rs -> elsewhere.rs: D\n  elsewhere.rs -> a.rs: A\n";
    assert_eq!(circles_of(&files), expected);
}

#[test]
fn the_search_ends_for_re_exports_that_lead_to_each_other() {
    assert_eq!(circles_of(&[ROOT, ("a", "pub use crate::b::X;"), ("b", "pub use crate::a::X;")]), "");
}

#[test]
fn a_name_that_a_macro_generates_belongs_to_the_file_of_the_module() {
    let b = ("b", "pub struct B(crate::a::Made);");
    let expected = "2 files import each other:\n  a.rs -> b.rs: B\n  b.rs -> a.rs: Made\n";
    assert_eq!(circles_of(&[ROOT, A, b]), expected);
}

#[test]
fn only_the_shortest_circle_of_many_files_is_printed() {
    let files = [
        ("lib", "mod a; mod b; mod c;"),
        ("a", "pub struct A(crate::b::B);"),
        ("b", "pub struct B(crate::c::C);"),
        ("c", "pub struct C(crate::a::A, crate::b::B);"),
    ];
    let expected =
        "3 files import each other, the shortest circle among them is:\n  b.rs -> c.rs: C\n  c.rs -> b.rs: B\n";
    assert_eq!(circles_of(&files), expected);
}
