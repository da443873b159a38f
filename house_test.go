package millrace_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/millrace-mq/millrace"

// source is one parsed Go file.
type source struct {
	path      string // from the root of the module, with slashes
	dir       string // "." for the root
	test      bool   // *_test.go
	generated bool
	lines     int
	fset      *token.FileSet
	file      *ast.File
}

// at returns "path:line" of a node's beginning.
func (s *source) at(p token.Pos) string { return fmt.Sprintf("%s:%d", s.path, s.fset.Position(p).Line) }

// line returns the line of a position.
func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// parseSource reads one file of the tree from its text.
func parseSource(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		generated: generatedLine.MatchString(text), lines: strings.Count(text, "\n"),
		fset: fset, file: file,
	}, nil
}

// readTree parses every Go file of the module below root: not testdata, not
// build results, not hidden directories, not modules of their own.
func readTree(root fs.FS) ([]*source, error) {
	var tree []*source
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(root, name, entry.Name())
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s, err := parseSource(name, string(text))
		if err == nil {
			tree = append(tree, s)
		}
		return err
	})
	return tree, err
}

func skipDir(root fs.FS, name, base string) error {
	if name == "." {
		return nil
	}
	if base == "testdata" || base == "bin" || base == "data" || base[0] == '.' || base[0] == '_' {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// TestHouse holds the whole tree to the rules. Each subtest is one rule.
func TestHouse(t *testing.T) {
	tree, err := readTree(os.DirFS("."))
	require.NoError(t, err)
	require.NotEmpty(t, tree)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(tree) {
				t.Error(finding)
			}
		})
	}
	t.Run("goroutines", func(t *testing.T) {
		table, err := os.ReadFile("docs/architecture.md")
		require.NoError(t, err, "docs/architecture.md must list every goroutine in a table that begins \"| package | function |\"; the code has:\n%s",
			goroutineTable(goroutines(tree)))
		for _, finding := range checkGoroutines(tree, string(table)) {
			t.Error(finding)
		}
	})
}

// goStatement is one place that starts a goroutine.
type goStatement struct{ dir, function, where string }

// goroutines lists the go statements, and the calls x.Go(f), of all but tests.
func goroutines(tree []*source) []goStatement {
	var found []goStatement
	for _, s := range tree {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				if startsGoroutine(n) {
					found = append(found, goStatement{s.dir, declName(decl), s.at(n.Pos())})
				}
				return true
			})
		}
	}
	return found
}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr: // sync.WaitGroup.Go and the like
		method, ok := n.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Go" && len(n.Args) == 1
	}
	return false
}

// declName names a declaration as the goroutine table does: Type.Method,
// Function, or the first name of a var.
func declName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		return typeName(d.Recv.List[0].Type) + "." + d.Name.Name
	case *ast.GenDecl:
		if value, ok := d.Specs[0].(*ast.ValueSpec); ok {
			return value.Names[0].Name
		}
	}
	return "?"
}

// typeName returns the name of a receiver's type without star and parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// goroutineTable writes the rows that docs/architecture.md should have.
func goroutineTable(found []goStatement) string {
	var b strings.Builder
	b.WriteString("| package | function | what it does | who joins it |\n|---|---|---|---|\n")
	for _, g := range found {
		fmt.Fprintf(&b, "| `%s` | `%s` | | |   <- %s\n", g.dir, g.function, g.where)
	}
	return b.String()
}

// checkGoroutines compares the goroutines of the code with the table in the
// text of docs/architecture.md: one row for each place that starts one.
func checkGoroutines(tree []*source, document string) []string {
	rows, ok := readGoroutineTable(document)
	if !ok {
		return []string{"docs/architecture.md has no table that begins \"| package | function |\"; the code has:\n" +
			goroutineTable(goroutines(tree))}
	}
	var findings []string
	for _, g := range goroutines(tree) {
		i := slices.Index(rows, [2]string{g.dir, g.function})
		if i < 0 {
			findings = append(findings, fmt.Sprintf("%s: %s in %s starts a goroutine that the table of docs/architecture.md does not list (one row for each)",
				g.where, g.function, g.dir))
			continue
		}
		rows = slices.Delete(rows, i, i+1)
	}
	for _, row := range rows {
		findings = append(findings, fmt.Sprintf("docs/architecture.md lists a goroutine of %s in %s that the code does not start", row[1], row[0]))
	}
	return findings
}

// readGoroutineTable returns package and function of each row.
func readGoroutineTable(document string) (rows [][2]string, ok bool) {
	for line := range strings.Lines(document) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 2 {
			if ok {
				break
			}
			continue
		}
		row := [2]string{cell(cells[0]), cell(cells[1])}
		switch {
		case strings.EqualFold(row[0], "package") && strings.EqualFold(row[1], "function"):
			ok = true
		case ok && strings.Trim(row[0], "-: ") != "":
			rows = append(rows, row)
		}
	}
	return rows, ok
}

// cell strips a table cell of spaces, code marks and the form (*Type).
func cell(text string) string {
	return strings.NewReplacer("`", "", "(*", "", ")", "").Replace(strings.TrimSpace(text))
}
