package millrace_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The bounds of the house, in lines.
const (
	maxFunction = 70
	maxFile     = 600
	maxPackage  = 6000
)

// rule is one house rule: it returns a line for each breach.
type rule struct {
	name  string
	check func(tree []*source) []string
}

var rules = []rule{
	{"floors", checkFloors},
	{"modules", checkModules},
	{"pure leaves", checkLeaves},
	{"function size", checkFunctions},
	{"file size", checkFiles},
	{"package size", checkPackages},
	{"no sleep in tests", checkSleep},
	{"clock at the edges", checkClock},
	{"names", checkNames},
	{"ignored errors", checkIgnored},
	{"doc comments", checkDocs},
}

// room is a directory with everything below it that no longer entry covers.
type room struct {
	floor int
	only  []string // the rooms it may import; nil = every room of a lower floor
	leaf  bool     // pure: no files, no network, no system calls
}

// Floors beside the stack: what stands on top of it and what drives it in tests.
const (
	floorSide = 3
	floorTop  = 4
)

var rooms = map[string]room{
	".":                 {floor: 0, only: []string{}},
	"protocol":          {floor: 0},
	"storage/vfs":       {floor: 0},
	"storage":           {floor: 1},
	"broker/queue":      {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/schedule":   {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/group":      {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/trace":      {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/auth":       {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/metrics":    {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker/config":     {floor: 1, leaf: true, only: []string{"protocol"}},
	"broker":            {floor: 2},
	"broker/cluster":    {floor: 2},
	"broker/server":     {floor: 3},
	"broker/http":       {floor: 3},
	"client":            {floor: floorSide, only: []string{"protocol"}},
	"bench":             {floor: floorSide, only: []string{"client", "protocol"}},
	"broker/brokertest": {floor: floorTop},
	"broker/simtest":    {floor: floorTop},
	"cmd":               {floor: floorTop},

	"cmd/millrace/cli":     {floor: floorSide, only: []string{"protocol", "client", "broker/config"}},
	"cmd/millrace/record":  {floor: floorSide, only: []string{"cmd/millrace/cli", "protocol"}},
	"cmd/millrace/inspect": {floor: floorSide, only: []string{"cmd/millrace/cli", "cmd/millrace/record", "storage", "storage/vfs", "protocol"}},
}

// roomOf returns the longest entry of rooms that covers dir; "" if none does.
func roomOf(dir string) string {
	for d := dir; d != "."; d = path.Dir(d) {
		if _, ok := rooms[d]; ok {
			return d
		}
	}
	if dir == "." {
		return "."
	}
	return ""
}

// imported is one import of a file.
type imported struct {
	name string
	pos  token.Pos
}

func imports(s *source) []imported {
	var found []imported
	for _, spec := range s.file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			found = append(found, imported{name, spec.Pos()})
		}
	}
	return found
}

// checkFloors: a package imports only what lies below it.
func checkFloors(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		from := roomOf(s.dir)
		if from == "" {
			findings = append(findings, s.path+": the directory has no floor; give it one in house_rules_test.go")
			continue
		}
		if s.test {
			continue
		}
		for _, i := range imports(s) {
			dir, inside := moduleDir(i.name)
			if inside && !mayImport(s, from, roomOf(dir)) {
				findings = append(findings, fmt.Sprintf("%s: %s may not import %s", s.at(i.pos), s.dir, dir))
			}
		}
	}
	return findings
}

// moduleDir returns the directory of a package of this module.
func moduleDir(importPath string) (string, bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

func mayImport(s *source, from, to string) bool {
	r := rooms[from]
	if s.file.Name.Name == "main" { // a program, wherever it stands
		r = rooms["cmd"]
	}
	switch {
	case to == "":
		return false
	case from == to:
		return true
	case r.only != nil:
		return slices.Contains(r.only, to)
	case r.floor < floorTop && (to == "client" || to == "bench"):
		return false
	}
	return rooms[to].floor < r.floor
}

// modules that the code may use, and those that only tests may.
var (
	allowedModules = []string{"golang.org/x/sys", "github.com/edsrzf/mmap-go", "github.com/cespare/xxhash/v2"}
	testModules    = []string{"github.com/stretchr/testify"}
)

// checkModules: nothing but the standard library and the listed modules.
func checkModules(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		allowed := allowedModules
		if s.test {
			allowed = slices.Concat(allowedModules, testModules)
		}
		for _, i := range imports(s) {
			first, _, _ := strings.Cut(i.name, "/")
			_, inside := moduleDir(i.name)
			standard := !strings.Contains(first, ".") && i.name != "C"
			if !standard && !inside && !slices.ContainsFunc(allowed, func(m string) bool { return i.name == m || strings.HasPrefix(i.name, m+"/") }) {
				findings = append(findings, fmt.Sprintf("%s: import of %q, which is not on the list of modules", s.at(i.pos), i.name))
			}
		}
	}
	return findings
}

// checkLeaves: a pure machine does no input or output.
func checkLeaves(tree []*source) []string {
	impure := regexp.MustCompile(`^(os|os/.*|net|net/http.*|net/rpc.*|syscall|io/ioutil|log/slog|golang\.org/x/sys/.*|github\.com/edsrzf/.*)$`)
	var findings []string
	for _, s := range tree {
		if s.test || !rooms[roomOf(s.dir)].leaf {
			continue
		}
		for _, i := range imports(s) {
			if impure.MatchString(i.name) {
				findings = append(findings, fmt.Sprintf("%s: %s is a pure leaf and may not import %q", s.at(i.pos), s.dir, i.name))
			}
		}
	}
	return findings
}

func checkFunctions(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.generated {
				continue
			}
			if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFunction {
				findings = append(findings, fmt.Sprintf("%s: %s has %d lines, at most %d", s.at(f.Pos()), declName(f), n, maxFunction))
			}
		}
	}
	return findings
}

func checkFiles(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if !s.generated && s.lines > maxFile {
			findings = append(findings, fmt.Sprintf("%s has %d lines, at most %d", s.path, s.lines, maxFile))
		}
	}
	return findings
}

func checkPackages(tree []*source) []string {
	lines := make(map[string]int)
	for _, s := range tree {
		if !s.test && !s.generated {
			lines[s.dir] += s.lines
		}
	}
	var findings []string
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		if lines[dir] > maxPackage {
			findings = append(findings, fmt.Sprintf("%s has %d lines without tests, at most %d", dir, lines[dir], maxPackage))
		}
	}
	return findings
}

// uses lists the positions where s names any of the identifiers of a package.
func uses(s *source, importPath string, names ...string) []ast.Node {
	local := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value != strconv.Quote(importPath) {
			continue
		}
		local = path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	var found []ast.Node
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local != "" && x.Name == local && slices.Contains(names, sel.Sel.Name) {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

func checkSleep(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if !s.test {
			continue
		}
		for _, n := range uses(s, "time", "Sleep") {
			findings = append(findings, s.at(n.Pos())+": a test waits for a condition (require.Eventually, a channel, testing/synctest), never for time to pass")
		}
	}
	return findings
}

// clockRooms are given the time; none of them asks for it.
func clockRoom(dir string) bool {
	r := roomOf(dir)
	return r == "storage" || r == "broker" || r == "broker/cluster" || rooms[r].leaf
}

// clockEdges may read the clock in spite of that: the default of an injected one.
var clockEdges = []string{}

func checkClock(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if s.test || !clockRoom(s.dir) {
			continue
		}
		for _, n := range uses(s, "time", "Now", "Since", "Until") {
			function := s.dir + " " + enclosing(s, n)
			if !slices.Contains(clockEdges, function) {
				findings = append(findings, fmt.Sprintf("%s: %s reads the clock; take the time as an argument or through an injected now", s.at(n.Pos()), function))
			}
		}
	}
	return findings
}

// enclosing names the top-level declaration around a node.
func enclosing(s *source, n ast.Node) string {
	for _, decl := range s.file.Decls {
		if decl.Pos() <= n.Pos() && n.End() <= decl.End() {
			return declName(decl)
		}
	}
	return "?"
}

var (
	vagueName = regexp.MustCompile(`(?i)(^|[^a-z])[a-z]*(manager|helper|util)s?($|[^a-z])|(^|[^a-z])impl($|[^a-z])`)
	vagueType = regexp.MustCompile(`(Manager|Helper|Util|Utility|Impl)s?([A-Z0-9]|$)|^(manager|helper|util|impl)s?([A-Z0-9]|$)`)
)

// checkNames: nothing is named Manager, Helper, Util or Impl.
func checkNames(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if vagueName.MatchString(strings.TrimSuffix(s.path, ".go")) || vagueName.MatchString(s.file.Name.Name) {
			findings = append(findings, s.path+": a file or package is named for the noun that it holds, not Manager, Helper, Util or Impl")
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			t, ok := n.(*ast.TypeSpec)
			if ok && vagueType.MatchString(t.Name.Name) {
				findings = append(findings, fmt.Sprintf("%s: type %s says nothing; name what it is", s.at(t.Pos()), t.Name.Name))
			}
			return true
		})
	}
	return findings
}

// mustUse are calls whose error decides whether data is safe.
var mustUse = []string{"Sync", "Fsync", "Fdatasync", "Truncate", "Ftruncate", "Rename"}

// checkIgnored: "_ = call()" needs a reason as a comment on its line, and a
// sync, a truncation or a rename is never a statement of its own.
func checkIgnored(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if s.test {
			continue
		}
		commented := make(map[int]bool)
		for _, group := range s.file.Comments {
			commented[s.line(group.Pos())] = true
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if discardsCall(n) && !commented[s.line(n.End())] {
					findings = append(findings, s.at(n.Pos())+": a result is thrown away without a reason (a comment on the same line)")
				}
			case *ast.ExprStmt:
				if name := calledMethod(n.X); slices.Contains(mustUse, name) {
					findings = append(findings, fmt.Sprintf("%s: the error of %s is not looked at", s.at(n.Pos()), name))
				}
			}
			return true
		})
	}
	return findings
}

// discardsCall reports whether a assigns a call to nothing but blanks.
func discardsCall(a *ast.AssignStmt) bool {
	for _, left := range a.Lhs {
		if name, ok := left.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return slices.ContainsFunc(a.Rhs, func(e ast.Expr) bool {
		_, ok := ast.Unparen(e).(*ast.CallExpr)
		return ok
	})
}

func calledMethod(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		if method, ok := call.Fun.(*ast.SelectorExpr); ok {
			return method.Sel.Name
		}
	}
	return ""
}

// selfExplained are methods whose interface says what they do.
var selfExplained = []string{"Error", "String", "Unwrap", "Is", "Len", "Less", "Swap", "Close", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}

// checkDocs: what other packages can see has a doc comment.
func checkDocs(tree []*source) []string {
	var findings []string
	for _, s := range tree {
		if s.test || s.generated || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			for _, name := range undocumented(s, decl) {
				findings = append(findings, fmt.Sprintf("%s: exported %s has no doc comment", s.at(name.Pos()), name.Name))
			}
		}
	}
	return findings
}

// undocumented lists the exported names of a declaration without a comment of
// their own, behind them, or above their group or block of lines.
func undocumented(s *source, decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		method := d.Recv != nil
		if d.Doc == nil && d.Name.IsExported() &&
			(!method || ast.IsExported(typeName(d.Recv.List[0].Type)) && !slices.Contains(selfExplained, d.Name.Name)) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		if d.Doc == nil {
			return undocumentedSpecs(s, d.Specs)
		}
	}
	return nil
}

func undocumentedSpecs(s *source, specs []ast.Spec) []*ast.Ident {
	var found []*ast.Ident
	covered := 0 // last line of a block that begins with a comment
	for _, spec := range specs {
		var names []*ast.Ident
		documented := false
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names, documented = []*ast.Ident{spec.Name}, spec.Doc != nil || spec.Comment != nil
		case *ast.ValueSpec:
			names, documented = spec.Names, spec.Comment != nil
			if spec.Doc != nil || s.line(spec.Pos()) == covered+1 && covered > 0 {
				covered, documented = s.line(spec.End()), true
			}
		}
		if i := slices.IndexFunc(names, (*ast.Ident).IsExported); i >= 0 && !documented {
			found = append(found, names[i])
		}
	}
	return found
}
