# Writes a C++ file with a function for each part of the page, which returns the
# text of its files, one after the other. Run as a script with
#   OUT      the file to write
#   PARTS    NAME=FILE+FILE..., separated by |; without files the text is empty
set(text "// Made by tools/report/embed.cmake.\n")
string(APPEND text "#include \"tools/report/page.h\"\n\n")
string(APPEND text "namespace delink::report {\n")
string(REPLACE "|" ";" parts "${PARTS}")
foreach(part IN LISTS parts)
  string(REGEX MATCH "^([A-Za-z]+)=(.*)$" matched "${part}")
  set(name "${CMAKE_MATCH_1}")
  string(REPLACE "+" ";" files "${CMAKE_MATCH_2}")
  string(APPEND text "\nstd::string_view ${name}() {\n")
  string(APPEND text "  static constexpr char kText[] =\n      \"\"")
  foreach(file IN LISTS files)
    file(READ "${file}" content)
    string(APPEND text "\n      R\"embedded_file(${content})embedded_file\"")
  endforeach()
  string(APPEND text ";\n  return {kText, sizeof(kText) - 1};\n}\n")
endforeach()
string(APPEND text "\n}  // namespace delink::report\n")
file(WRITE "${OUT}" "${text}")
