# shellcheck shell=bash
# Prints the size of the code. Sourced by scripts/check.

# size: prints the lines of Rust of each folder, without blank lines, comments and tests.
size() {
  git ls-files '*.rs' | grep -vE '(^|/)(tests|examples)/|_tests\.rs$|/(tests|golden)\.rs$' | xargs awk '
    FNR == 1 { is_test = 0; split(FILENAME, path, "/"); folder = path[1]; files[folder]++ }
    # The tests of a file are at its end.
    before == "#[cfg(test)]" && /^mod [a-z_]+ \{/ { is_test = 1; lines[folder]-- }
    !is_test && !/^[ \t]*($|\/\/)/ { lines[folder]++ }
    { before = $0 }
    END {
      for (folder in lines) {
        printf "%8d lines of code in %3d files of %s\n", lines[folder], files[folder], folder | "sort -rn"
        all += lines[folder]
      }
      close("sort -rn")
      printf "%8d in all\n", all
    }'
}
