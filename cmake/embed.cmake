# SPDX-License-Identifier: Apache-2.0
#
# cmake -DIN=file -DOUT=file.c -DNAME=symbol -DHEADER=name.h -P embed.cmake
# Writes the bytes of IN as `const unsigned char NAME[]` and their number as `NAME_size`.

file(READ ${IN} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "#include \"${HEADER}\"

const unsigned char ${NAME}[] = {
${hex}
};
const size_t ${NAME}_size = sizeof ${NAME};
")
