//! Reads the modules of a crate, with the names that they define and the paths that they use.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, ItemUse, Lit, Meta, UseTree};

/// The index of a module in [`Tree::modules`].
pub(crate) type Id = usize;

/// The root module of a crate.
pub(crate) const ROOT: Id = 0;

/// The segments of a path like `a::b::c`.
pub(crate) type Segments = Vec<String>;

pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
}

pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<Id>,
    pub(crate) defines: HashMap<String, Vec<Definition>>,
    /// For each `use a::*`, the path before the star.
    pub(crate) globs: Vec<Segments>,
    /// The paths in the module, those of its imports included. Unit tests are left out, because a test may need code
    /// that uses the tested code.
    pub(crate) paths: Vec<Segments>,
}

pub(crate) enum Definition {
    Module(Id),
    /// `use a::b as name`.
    Import(Segments),
    /// A type, a function, a trait, a constant or a macro.
    Item,
}

impl Tree {
    /// Reads the crate whose root module is in the file `root`.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self { modules: Vec::new() };
        tree.read_file(root, folder_of(root), None)?;
        Ok(tree)
    }

    /// Reads a module from its file. `folder` has the files of the module's children.
    fn read_file(&mut self, file: &Path, folder: &Path, parent: Option<Id>) -> anyhow::Result<Id> {
        let file = &file.canonicalize().with_context(|| format!("cannot find {}", file.display()))?;
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        self.read_module(parsed.items, file, folder, parent)
    }

    fn read_module(&mut self, items: Vec<Item>, file: &Path, folder: &Path, parent: Option<Id>) -> anyhow::Result<Id> {
        let id = self.modules.len();
        let module =
            Module { file: file.to_owned(), parent, defines: HashMap::new(), globs: Vec::new(), paths: Vec::new() };
        self.modules.push(module);
        for item in items {
            match item {
                Item::Mod(child) if !for_tests(&child.attrs) => self.read_child(id, child, file, folder)?,
                Item::Mod(_) => {}
                item => self.modules[id].read_item(&item),
            }
        }
        Ok(id)
    }

    fn read_child(&mut self, parent: Id, child: ItemMod, file: &Path, folder: &Path) -> anyhow::Result<()> {
        let name = child.ident.to_string();
        let folder_of_child = folder.join(&name);
        let id = if let Some((_, items)) = child.content {
            self.read_module(items, file, &folder_of_child, Some(parent))?
        } else if let Some(path) = path_attribute(&child.attrs) {
            let path = folder_of(file).join(path);
            self.read_file(&path, folder_of(&path), Some(parent))?
        } else {
            let beside = folder.join(format!("{name}.rs"));
            let within = folder_of_child.join("mod.rs");
            self.read_file(if beside.exists() { &beside } else { &within }, &folder_of_child, Some(parent))?
        };
        self.modules[parent].define(name, Definition::Module(id));
        Ok(())
    }
}

impl Module {
    fn define(&mut self, name: String, definition: Definition) {
        self.defines.entry(name).or_default().push(definition);
    }

    fn read_item(&mut self, item: &Item) {
        let (name, attributes) = match item {
            Item::Use(item) => {
                if !for_tests(&item.attrs) {
                    self.read_use(&item.tree, &mut Vec::new());
                }
                return;
            }
            Item::Const(item) => (Some(&item.ident), &item.attrs),
            Item::Enum(item) => (Some(&item.ident), &item.attrs),
            Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
            Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
            Item::Static(item) => (Some(&item.ident), &item.attrs),
            Item::Struct(item) => (Some(&item.ident), &item.attrs),
            Item::Trait(item) => (Some(&item.ident), &item.attrs),
            Item::Type(item) => (Some(&item.ident), &item.attrs),
            Item::Union(item) => (Some(&item.ident), &item.attrs),
            Item::Impl(item) => (None, &item.attrs),
            _ => return,
        };
        if for_tests(attributes) {
            return;
        }
        if let Some(name) = name {
            self.define(name.to_string(), Definition::Item);
        }
        self.read_tokens(item.to_token_stream());
    }

    fn read_use(&mut self, tree: &UseTree, before: &mut Segments) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.read_use(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.import(last.clone(), before.clone());
                }
            }
            UseTree::Name(name) => self.import(name.ident.to_string(), joined(before, name.ident.to_string())),
            UseTree::Rename(rename) => {
                self.import(rename.rename.to_string(), joined(before, rename.ident.to_string()));
            }
            UseTree::Glob(_) => {
                self.globs.push(before.clone());
                self.paths.push(before.clone());
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.read_use(tree, before)),
        }
    }

    fn import(&mut self, name: String, path: Segments) {
        self.paths.push(path.clone());
        self.define(name, Definition::Import(path));
    }

    /// Reads paths from tokens and not from parsed code, because the arguments of a macro are only tokens. A method
    /// call is ignored, because it does not name the file of the method.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream());
                    at += 1;
                }
                TokenTree::Ident(ident) if ident == "use" => at += self.read_inner_use(&tokens[at..]),
                TokenTree::Ident(_) => {
                    let path = path_at(&tokens[at..]);
                    let after = at + 3 * path.len() - 2;
                    if may_begin_after(&tokens[..at]) {
                        self.paths.push(path);
                    }
                    at = after;
                }
                _ => at += 1,
            }
        }
    }

    /// Reads an import within a function, which counts for the whole module. Returns the number of its tokens.
    fn read_inner_use(&mut self, tokens: &[TokenTree]) -> usize {
        let end = tokens.iter().position(|token| is_punct(token, ";")).map_or(tokens.len(), |semicolon| semicolon + 1);
        let Ok(item) = syn::parse2::<ItemUse>(tokens[..end].iter().cloned().collect()) else { return 1 };
        self.read_use(&item.tree, &mut Vec::new());
        end
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

fn joined(before: &[String], last: String) -> Segments {
    before.iter().cloned().chain([last]).collect()
}

/// Returns the path at the beginning of `tokens`, which begin with an identifier.
fn path_at(tokens: &[TokenTree]) -> Segments {
    let mut path = Vec::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(ident), after @ ..] = rest {
        path.push(ident.to_string());
        let [first, second, next @ ..] = after else { break };
        if !is_punct(first, ":") || !is_punct(second, ":") || !matches!(next.first(), Some(TokenTree::Ident(_))) {
            break;
        }
        rest = next;
    }
    path
}

/// Tells whether a path may begin after these tokens. After a dot there is a field, and after a quote a lifetime. After
/// two colons there is the rest of a path that begins with angle brackets or with another crate.
fn may_begin_after(tokens: &[TokenTree]) -> bool {
    match tokens {
        [.., before, last] if is_punct(last, ".") => is_punct(before, "."),
        [.., before, last] if is_punct(last, ":") => !is_punct(before, ":"),
        [.., last] => !is_punct(last, ".'"),
        [] => true,
    }
}

fn is_punct(token: &TokenTree, any_of: &str) -> bool {
    matches!(token, TokenTree::Punct(punct) if any_of.contains(punct.as_char()))
}

fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == "test")
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}
